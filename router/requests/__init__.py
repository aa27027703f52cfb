"""Requests of one gateway, from their arrival to their end."""
