"""Reports: tables as text, and pages of one HTML file. Knows nothing of evaluation."""
