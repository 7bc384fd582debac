"""Reports: tables as text, charts, and pages of one HTML file. Knows nothing of evaluation."""
