"""Measurements of vancetope against other durable engines, side by side on one machine: ``make bench``."""
