"""Extensions that are loaded by `module:name` (`common.plugins`), in the same way as a user's own extensions."""
