"""The papers' tables, figures and claims as studies: what they read, how claims are decided, what a ledger holds."""
