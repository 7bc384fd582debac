"""The files that tasks are read from, as they are published: readers, one line of error for what is malformed."""
