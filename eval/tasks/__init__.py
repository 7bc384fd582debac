"""The tasks, one file a family: data read, embeddings asked for, figures computed."""
