"""A cluster in virtual time: the product's own dispatcher and engine cores, with modelled execution and delays."""
