"""Ways in which families of models write calls of tools: their grammars, and machines that read them."""
