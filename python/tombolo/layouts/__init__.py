"""Boxes that are computed: from DTensor placements, from Megatron-core's rules, and from an engine's own
loader. Both sides speak of checkpoint names, whole shapes, and [first, first + count) of each axis."""
