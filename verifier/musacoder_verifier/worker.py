"""The runtime worker: a zygote in the user's interpreter, and the children that it forks."""
