"""A suite that asks any AMQP 0-9-1 broker what it does with each rule of the specification."""
