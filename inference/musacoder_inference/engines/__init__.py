"""How text is produced: one module or package per engine behind `base.Engine`."""
