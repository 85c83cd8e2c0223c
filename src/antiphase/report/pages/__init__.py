"""Pages: of runs, of a comparison, of a ledger."""
