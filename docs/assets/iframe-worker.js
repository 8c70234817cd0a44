// Browsers refuse workers on pages that were opened from the disk. There the search of the site runs in a hidden frame
// that answers to the same messages; on a server nothing is changed.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) =>
        Promise.all(urls.map((each) => load(inside.document, each)));
      load(inside.document, url).then(() => {
        this.inside = inside;
        this.waiting.forEach((data) => this.postMessage(data));
      });
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }

    terminate() {}
  };
}

function load(page, url) {
  return new Promise((resolve, reject) => {
    const script = page.createElement("script");
    script.src = url;
    script.onload = resolve;
    script.onerror = reject;
    page.body.appendChild(script);
  });
}
