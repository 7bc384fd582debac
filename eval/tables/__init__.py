"""The result tables of papers: their published rows and averages, and rows for the user's models."""
