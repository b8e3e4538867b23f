/* What the page starts with: unpacks its data and then its script, which the page's policy names by hash as well. */

async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
}

async function load() {
  for (const [name, type] of [["data", "application/json"], ["code", "text/javascript"]]) {
    const pack = document.getElementById(`pack-${name}`);
    const unpacked = document.createElement("script");
    Object.assign(unpacked, { id: name, type, textContent: await inflate(pack.textContent) });
    pack.replaceWith(unpacked);
  }
}

if (globalThis.DecompressionStream) load();
else document.getElementById("page").textContent = "This page needs a browser from 2023 or later.";
