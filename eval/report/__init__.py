"""Reports: tables for a terminal, charts, and pages of one HTML file. Knows nothing of evaluation."""
