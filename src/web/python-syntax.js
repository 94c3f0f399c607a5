// Source text in coloured pieces: a tokenizer for the eye, of Python. What it takes for a string or a comment is one in
// any program that runs.

const KEYWORDS = new Set((
  "False None True and as assert async await break class continue def del elif else except finally for from global if " +
  "import in is lambda nonlocal not or pass raise return try while with yield").split(" "));

const TOKEN = /(?<comment>#.*)|(?<string>(?<!\w)[rbuft]{0,2}(?:"""|'''|"|'))|(?<number>\b\d[\w.]*)|(?<name>[\p{L}_][\p{L}\p{N}_]*)|(?<decorator>^\s*@[\w.]+)/giu;

/** Where an open string ends in the text, from `at` on; -1: not in this line. */
function endOfString(text, at, {quote, isFormatted}) {
  for (let i = at; i < text.length; i++) {
    if (text[i] === "\\") i++;
    else if (isFormatted && text[i] === "{" && text[i + 1] === "{") i++;
    else if (isFormatted && text[i] === "{") i = endOfField(text, i);
    else if (text.startsWith(quote, i)) return i + quote.length;
  }
  return -1;
}

/** The brace that closes a replacement field, or the one that opens it when there is none. */
function endOfField(text, at) {
  let depth = 0;
  for (let i = at; i < text.length; i++) {
    if (text[i] === "{") depth++;
    if (text[i] === "}" && --depth === 0) return i;
  }
  return at;
}

/**
 * The pieces of a line, [text, class], and what the next line begins in the middle of. `open`: the string that this one
 * begins in the middle of, {quote, isFormatted}, or null.
 */
function colourLine(text, open) {
  const pieces = [];
  let at = 0;
  let isNamed = false;
  const put = (end, className) => {
    if (end > at) pieces.push([text.slice(at, end), className]);
    at = end;
  };
  const putString = (string, from) => {
    const end = endOfString(text, from, string);
    put(end < 0 ? text.length : end, "string");
    return end < 0 && (string.quote.length === 3 || text.endsWith("\\")) ? string : null;
  };
  if (open) open = putString(open, 0);
  TOKEN.lastIndex = at;
  for (let match = TOKEN.exec(text); match && !open && at < text.length; match = TOKEN.exec(text)) {
    const {comment, string, number, name} = match.groups;
    put(match.index, "");
    if (string !== undefined) {
      const prefix = string.replace(/["']+$/, "");
      open = putString({quote: string.slice(prefix.length), isFormatted: /[ft]/i.test(prefix)}, match.index + string.length);
      TOKEN.lastIndex = at;
      continue;
    }
    const end = match.index + match[0].length;
    const isKeyword = name !== undefined && KEYWORDS.has(name);
    put(end, comment !== undefined ? "comment" : number !== undefined ? "number" : isKeyword ? "keyword" : name === undefined || isNamed ? "defined" : "");
    isNamed = name === "def" || name === "class";
  }
  put(text.length, open ? "string" : "");
  return {pieces, open};
}
