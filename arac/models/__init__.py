"""Policies and critics."""
