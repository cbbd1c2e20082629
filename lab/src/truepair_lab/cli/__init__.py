"""The commands of `truepair-lab`."""
