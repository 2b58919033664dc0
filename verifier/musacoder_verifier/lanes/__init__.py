"""The two ways from recorded sources to a loadable extension: `fast` (facade) and `stock`."""
