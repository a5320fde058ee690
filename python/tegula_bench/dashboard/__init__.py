"""Pages with charts that need no network: what they show, and how it is drawn."""
