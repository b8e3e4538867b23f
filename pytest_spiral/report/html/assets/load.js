/* What the page starts with: unpacks its data and then its script, which the page's policy names by hash as well. */

async function inflate(...names) {
  const packs = names.map((name) => atob(document.getElementById(`pack-${name}`).textContent));
  const bytes = packs.map((pack) => Uint8Array.from(pack, (letter) => letter.charCodeAt(0)));
  return new Response(new Blob(bytes).stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
}

async function load() {
  for (const [name, type] of [["data", "application/json"], ["code", "text/javascript"]]) {
    const unpacked = document.createElement("script");
    Object.assign(unpacked, { id: name, type, textContent: await inflate(name) });
    document.getElementById(`pack-${name}`).replaceWith(unpacked);
  }
}

load().catch(() => {
  // A browser may know the stream and not this format, and a file may be cut off.
  document.getElementById("page").textContent = "This page needs a browser from 2023 or later, or the file is damaged.";
});
