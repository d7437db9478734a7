"""Which tip a user sees: features → policies → state → serving → shadow.

The arithmetic (`features`, `profiles`, `ridge`, `policies`, `draws`) does no I/O, and knows no clock and no
random generator: a decision is a function of what is remembered, what is asked and one number in [0, 1).
"""
