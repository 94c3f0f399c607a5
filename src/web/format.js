// Figures and names as people read them.

const format = {
  /** An amount of a measure: "1.234 s", "12.3 ms", "4.5 MiB", "1,234". */
  amount(value, unit) {
    if (unit === "ns") return format.time(value);
    if (unit === "bytes") return format.bytes(value);
    return Math.round(value).toLocaleString("en");
  },

  time(ns) {
    if (ns === 0) return "0 s";
    const seconds = Math.round(ns / 1e9);
    if (seconds >= 60) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
    if (ns >= 1e9) return `${(ns / 1e9).toFixed(ns >= 10e9 ? 2 : 3)} s`;
    if (ns >= 1e6) return `${(ns / 1e6).toFixed(ns >= 10e6 ? 1 : 2)} ms`;
    return `${(ns / 1e3).toFixed(ns >= 10e3 ? 0 : 1)} µs`;
  },

  bytes(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let rank = 0;
    while (bytes >= 1024 && rank < units.length - 1) {
      bytes /= 1024;
      rank++;
    }
    return `${rank === 0 ? bytes : bytes.toFixed(bytes >= 100 ? 0 : 1)} ${units[rank]}`;
  },

  /** "4.5 ±1.2 MiB" */
  bytesWithin(bytes, margin) {
    let unit = 1;
    while (bytes / unit >= 1024 && unit < 2 ** 40) unit *= 1024;
    const [number, name] = format.bytes(bytes).split(" ");
    const within = margin / unit;
    return `${number} ±${within.toFixed(within >= 100 ? 0 : 1)} ${name}`;
  },

  percent(part, whole) {
    if (whole <= 0) return "0 %";
    const percent = (100 * part) / whole;
    return `${percent.toFixed(percent >= 10 || percent === 0 ? 1 : 2)} %`;
  },

  /** The last part of a path. */
  base(path) {
    return path.slice(path.lastIndexOf("/") + 1) || path;
  },

  folder(path) {
    return path.slice(0, Math.max(0, path.lastIndexOf("/")));
  },
};

/** An element with its class, text and children. */
function element(tag, className, ...content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...content);
  return made;
}
