"""Extensions that come with Clearspan. They are loaded by `module:name`, like extensions that a user writes."""
