"""The papers' result tables: their averages, their published rows, and yours beside them."""
