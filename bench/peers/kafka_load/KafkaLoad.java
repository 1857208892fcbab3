import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Load generator for Kafka: appends records to a topic and reads it.
 *
 * <p>bench/peers/kafka.py starts it with the brokers' addresses and sends its commands by standard
 * input, one in each line. All commands of a session run in one JVM, because a new one is slow:
 *
 * <pre>
 * create TOPIC FLUSH             creates a topic with one partition and three replicas; FLUSH is its
 *                                flush.messages, or 0 for the default
 * open TOPIC CLIENTS WINDOW SIZE makes the producers
 * append RECORDS SECONDS         appends records until there are so many, or for so long
 * close                          closes the producers
 * read TOPIC RECORDS             reads so many records from the start of a topic
 * </pre>
 *
 * <p>Each command is answered by one line, an object of JSON. A record counts when its producer has
 * got the acknowledgement.
 */
public final class KafkaLoad {
  private static final short REPLICAS = 3;
  private static final long START_NANOS = TimeUnit.MINUTES.toNanos(1);

  private final String brokers;
  private final List<Client> clients = new ArrayList<>();
  private ExecutorService threads;

  private KafkaLoad(String brokers) {
    this.brokers = brokers;
  }

  public static void main(String[] arguments) throws Exception {
    KafkaLoad load = new KafkaLoad(arguments[0]);
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      System.out.println(load.answer(line.split(" ")));
    }
    System.exit(0);
  }

  private String answer(String[] words) throws Exception {
    switch (words[0]) {
      case "create":
        create(words[1], words[2]);
        return "{}";
      case "open":
        open(words[1], number(words[2]), number(words[3]), number(words[4]));
        return "{}";
      case "append":
        return append(Long.parseLong(words[1]), Double.parseDouble(words[2]));
      case "close":
        clients.forEach(client -> client.producer.close());
        clients.clear();
        threads.shutdown();
        return "{}";
      case "read":
        return read(words[1], Long.parseLong(words[2]));
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  /** Creates a topic, and waits until all its replicas are in sync. */
  private void create(String name, String flush) throws Exception {
    NewTopic topic = new NewTopic(name, 1, REPLICAS);
    topic.configs(
        flush.equals("0")
            ? Map.of("min.insync.replicas", "2")
            : Map.of("min.insync.replicas", "2", "flush.messages", flush));
    long end = System.nanoTime() + START_NANOS;
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", brokers))) {
      boolean created = false;
      while (true) {
        try {
          if (!created) {
            admin.createTopics(List.of(topic)).all().get();
            created = true;
          }
          TopicDescription found =
              admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
          if (found.partitions().get(0).isr().size() == REPLICAS) {
            return;
          }
        } catch (ExecutionException failure) {
          // Just after the start, a broker does not know the other brokers, and just after its
          // creation it does not know the topic.
          if (System.nanoTime() > end) {
            throw failure;
          }
        }
        Thread.sleep(100);
        if (System.nanoTime() > end) {
          throw new IllegalStateException("the replicas are not in sync within a minute");
        }
      }
    }
  }

  private void open(String topic, int count, int window, int size) {
    threads = Executors.newFixedThreadPool(count);
    byte[] data = new byte[size];
    new Random(7).nextBytes(data);
    Map<String, Object> settings =
        Map.of(
            "bootstrap.servers", brokers,
            "acks", "all",
            "enable.idempotence", true,
            "linger.ms", 0,
            "batch.size", 65536);
    for (int i = 0; i < count; i++) {
      KafkaProducer<byte[], byte[]> producer =
          new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
      clients.add(new Client(producer, new ProducerRecord<>(topic, 0, null, data), window));
    }
  }

  /** Lets all clients append together, and returns the figures of this command alone. */
  private String append(long records, double seconds) throws Exception {
    AtomicLong left = new AtomicLong(records);
    double cpu = cpuSeconds();
    long begun = System.nanoTime();
    long end = begun + (long) (seconds * 1e9);
    List<Future<?>> running = new ArrayList<>();
    for (Client client : clients) {
      running.add(threads.submit(() -> client.append(left, end)));
    }
    for (Future<?> each : running) {
      each.get();
    }
    double elapsed = (System.nanoTime() - begun) / 1e9;
    double used = cpuSeconds() - cpu;
    long[] latencies =
        clients.stream().flatMapToLong(c -> Arrays.stream(c.latencies, 0, c.count)).toArray();
    Arrays.sort(latencies);
    return String.format(
        Locale.ROOT,
        "{\"seconds\": %f, \"records\": %d, \"p50_ms\": %f, \"p99_ms\": %f, \"client_seconds\": %f}",
        elapsed,
        latencies.length,
        latencies[latencies.length / 2] / 1e6,
        latencies[(int) (latencies.length * 99L / 100)] / 1e6,
        used);
  }

  private String read(String topic, long records) {
    Map<String, Object> settings =
        Map.of(
            "bootstrap.servers", brokers,
            "enable.auto.commit", false,
            "max.poll.records", 10_000,
            "max.partition.fetch.bytes", 8 << 20);
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      double cpu = cpuSeconds();
      long begun = System.nanoTime();
      List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0));
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      long count = 0;
      while (count < records) {
        count += consumer.poll(Duration.ofSeconds(1)).count();
      }
      return String.format(
          Locale.ROOT,
          "{\"seconds\": %f, \"records\": %d, \"client_seconds\": %f}",
          (System.nanoTime() - begun) / 1e9,
          count,
          cpuSeconds() - cpu);
    }
  }

  private static int number(String word) {
    return Integer.parseInt(word);
  }

  /** Returns the CPU time of this process. */
  private static double cpuSeconds() {
    OperatingSystemMXBean system =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    return system.getProcessCpuTime() / 1e9;
  }

  /** One producer, which keeps at most {@code window} appends open. */
  private static final class Client {
    final KafkaProducer<byte[], byte[]> producer;
    long[] latencies = new long[1024];
    int count;
    private final ProducerRecord<byte[], byte[]> record;
    private final int window;
    private final Semaphore free;
    private volatile Exception failure;

    Client(
        KafkaProducer<byte[], byte[]> producer,
        ProducerRecord<byte[], byte[]> record,
        int window) {
      this.producer = producer;
      this.record = record;
      this.window = window;
      this.free = new Semaphore(window);
    }

    /** Appends while the clients have records left and the time is before {@code end}. */
    Void append(AtomicLong left, long end) throws Exception {
      count = 0;
      while (System.nanoTime() < end && left.decrementAndGet() >= 0) {
        free.acquire();
        long begun = System.nanoTime();
        producer.send(
            record,
            (metadata, error) -> {
              if (error == null) {
                acknowledged(System.nanoTime() - begun);
              } else {
                failure = error;
              }
              free.release();
            });
      }
      free.acquire(window);
      free.release(window);
      if (failure != null) {
        throw failure;
      }
      return null;
    }

    /** Notes a latency. Only the thread of the producer calls this. */
    private void acknowledged(long nanos) {
      if (count == latencies.length) {
        latencies = Arrays.copyOf(latencies, 2 * count);
      }
      latencies[count++] = nanos;
    }
  }
}
