// Nothing: what is compiled here are the headers that all tests include.
