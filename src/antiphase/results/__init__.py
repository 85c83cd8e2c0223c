"""What commands and studies compute about a run, and keep in its folder."""
