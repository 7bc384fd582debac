"""Extensions that come with Clearspan. Like a user's own, they are loaded by `module:name` (`common.plugins`)."""
