from antiphase.cli import entry

entry()
