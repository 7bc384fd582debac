"""Reports: the summary of evaluations, tables as text, and pages of one HTML file."""
