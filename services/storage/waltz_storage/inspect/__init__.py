"""Read the files of a stopped storage: what they hold, and what a start would do. Never writes."""
