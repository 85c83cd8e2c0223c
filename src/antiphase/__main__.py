from __future__ import annotations

from antiphase.cli import entry

entry()
