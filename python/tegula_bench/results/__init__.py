"""Files of results: which of their rows count, tables, plots and the page made of them."""
