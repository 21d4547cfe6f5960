"""Another server of the OpenAI API as the source of answers."""
