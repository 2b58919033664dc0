"""Children for the tests of the runtime worker; on the zygote's path through PYTHONPATH."""
