"""Data: name -> ImageSet (pixels in [0,1], labels, class names)."""

from antiphase.data.catalog import CATALOG, check_name, load

__all__ = ["CATALOG", "check_name", "load"]
