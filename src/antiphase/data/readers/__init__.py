"""One reader per layout of a data set on disk: (split, folder, size) -> ImageSet."""
