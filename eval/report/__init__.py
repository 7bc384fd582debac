"""Reports on evaluations: a summary with bar charts and tables, as text for the terminal and as one HTML file."""
