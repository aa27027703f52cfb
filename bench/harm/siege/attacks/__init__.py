"""The catalogue of attacks, each module with the attacks of one or two classes."""
