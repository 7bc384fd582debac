"""Parts that the product loads by `module:name` (`common.plugins`), as it would load a user's own."""
