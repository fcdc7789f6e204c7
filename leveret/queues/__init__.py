"""What a message waits in: queues, their consumers and their stores."""
