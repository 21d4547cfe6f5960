"""The regression harness: phases that ask a model, one object of figures, comparison with another.

A phase returns plain data; the report is the only source of what is printed or compared.
"""
