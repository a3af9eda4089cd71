"""Experiments: many ordinary runs, and the tables and pictures drawn from their folders."""
