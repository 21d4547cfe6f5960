"""Where answers come from. Commands and routes see only `base.Backend`."""
