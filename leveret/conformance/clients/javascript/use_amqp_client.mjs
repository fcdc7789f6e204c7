// @cloudamqp/amqp-client: node use_amqp_client.mjs URI; a line of JSON for each scenario.
import { AMQPClient } from "@cloudamqp/amqp-client"

const uri = process.argv[2]
const WAIT_MS = 10_000
const LARGE = Buffer.alloc(5_120_000, "0123456789abcdef")
let made = 0

const unique = (kind) => `conformance-${process.pid.toString(16)}-js-${kind}${made++}`

function expect(seen, expected) {
  const [left, right] = [JSON.stringify(seen), JSON.stringify(expected)]
  if (left !== right) throw new Error(`expected ${right}, saw ${left}`)
}

async function withChannel(use) {
  const connection = await new AMQPClient(uri).connect()
  try {
    return await use(await connection.channel(), connection)
  } finally {
    if (!connection.closed) await connection.close()
  }
}

async function ownQueue(channel) {
  const name = unique("q")
  await channel.queueDeclare(name, { exclusive: true })
  return name
}

/** What a consumer was sent; `take` waits for a number of messages. */
class Received {
  messages = []
  #waiting = null

  static async of(channel, queue, options = {}) {
    const received = new Received()
    await channel.basicConsume(queue, { noAck: false, ...options }, (message) => {
      received.messages.push(message)
      received.#look()
    })
    return received
  }

  take(count) {
    return new Promise((resolve) => {
      this.#waiting = { count, resolve }
      this.#look()
    })
  }

  get bodies() {
    return this.messages.map((message) => message.bodyString())
  }

  #look() {
    if (this.#waiting && this.messages.length >= this.#waiting.count) {
      this.#waiting.resolve(this.messages)
      this.#waiting = null
    }
  }
}

const numbered = (count) => Array.from({ length: count }, (_, number) => String(number))

const scenarios = {
  "publish-and-consume": () =>
    withChannel(async (channel) => {
      const [queue, exchange] = [await ownQueue(channel), unique("x")]
      await channel.exchangeDeclare(exchange, "topic", { autoDelete: true, durable: false })
      await channel.queueBind(queue, exchange, "a.*")
      for (const body of numbered(100)) await channel.basicPublish(exchange, "a.b", body)
      const received = await Received.of(channel, queue)
      const messages = await received.take(100)
      expect(received.bodies, numbered(100))
      await messages.at(-1).ack(true)
      expect((await channel.queueDelete(queue)).messageCount, 0)
    }),

  confirms: () =>
    withChannel(async (channel) => {
      const queue = await ownQueue(channel)
      await channel.confirmSelect()
      const publishes = numbered(100).map((body) =>
        channel.basicPublish("", queue, body, { deliveryMode: 2 }),
      )
      expect(await Promise.all(publishes), numbered(100).map((number) => Number(number) + 1))
      expect((await channel.queueDeclare(queue, { passive: true })).messageCount, 100)
    }),

  "mandatory-return": () =>
    withChannel(async (channel) => {
      const returned = new Promise((resolve) => (channel.onReturn = resolve))
      await channel.basicPublish("", unique("none"), "back", {}, true)
      const message = await returned
      expect([message.replyCode, message.bodyString()], [312, "back"])
    }),

  "nack-and-requeue": () =>
    withChannel(async (channel) => {
      const queue = await ownQueue(channel)
      await channel.basicPublish("", queue, "again")
      const received = await Received.of(channel, queue)
      const [first] = await received.take(1)
      await first.nack(true)
      const [, second] = await received.take(2)
      expect([first.redelivered, second.redelivered], [false, true])
      await second.reject(false)
    }),

  prefetch: () =>
    withChannel(async (channel) => {
      const queue = await ownQueue(channel)
      for (const body of numbered(10)) await channel.basicPublish("", queue, body)
      await channel.basicQos(3)
      const received = await Received.of(channel, queue)
      const messages = await received.take(3)
      expect((await channel.queueDeclare(queue, { passive: true })).messageCount, 7)
      expect(messages.length, 3)
      await messages[1].ack(true)
      await received.take(5)
      expect(received.bodies, numbered(5))
    }),

  rpc: () =>
    withChannel(async (server, connection) => {
      const client = await connection.channel()
      const queue = await ownQueue(server)
      await server.basicConsume(queue, { noAck: true }, (question) => {
        const { replyTo, correlationId } = question.properties
        server.basicPublish("", replyTo, question.bodyString().toUpperCase(), { correlationId })
      })
      const replies = await Received.of(client, "amq.rabbitmq.reply-to", { noAck: true })
      const asked = { replyTo: "amq.rabbitmq.reply-to", correlationId: "7" }
      await client.basicPublish("", queue, "question", asked)
      const [reply] = await replies.take(1)
      expect([reply.bodyString(), reply.properties.correlationId], ["QUESTION", "7"])
    }),

  "large-message": () =>
    withChannel(async (channel) => {
      const queue = await ownQueue(channel)
      await channel.basicPublish("", queue, LARGE)
      const received = await Received.of(channel, queue, { noAck: true })
      const [message] = await received.take(1)
      expect(Buffer.compare(Buffer.from(message.body), LARGE), 0)
    }),

  transactions: () =>
    withChannel(async (channel) => {
      const queue = await ownQueue(channel)
      await channel.txSelect()
      await channel.basicPublish("", queue, "undone")
      await channel.txRollback()
      await channel.basicPublish("", queue, "done")
      await channel.txCommit()
      expect((await channel.basicGet(queue, { noAck: true })).bodyString(), "done")
      expect(await channel.basicGet(queue, { noAck: true }), null)
    }),

  errors: () =>
    withChannel(async (channel, connection) => {
      const refusal = await channel.queueDeclare(unique("none"), { passive: true }).then(
        () => "no refusal",
        (error) => error.message,
      )
      if (!refusal.includes("404")) throw new Error(`expected a 404, saw ${refusal}`)
      await ownQueue(await connection.channel())
    }),

  reopen: async () => {
    const queue = unique("q")
    await withChannel(async (channel) => {
      await channel.queueDeclare(queue, { durable: true })
      await channel.confirmSelect()
      await channel.basicPublish("", queue, "kept", { deliveryMode: 2 })
    })
    await withChannel(async (channel) => {
      expect((await channel.basicGet(queue, { noAck: true })).bodyString(), "kept")
      await channel.queueDelete(queue)
    })
  },
}

function limit(work) {
  let timer
  const over = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("nothing more came")), WAIT_MS)
  })
  return Promise.race([work, over]).finally(() => clearTimeout(timer))
}

for (const [scenario, run] of Object.entries(scenarios)) {
  let text = ""
  try {
    await limit(run())
  } catch (error) {
    console.error(error)
    text = String(error)
  }
  console.log(JSON.stringify({ scenario, passed: !text, text }))
}
process.exit()
