// Browsers start no worker from file://. There the search of the site runs in a hidden frame instead, which takes the
// messages that a worker would.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      addEventListener("message", event => {
        if (event.source === this.inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
      this.inside.document.write(
        "<script>postMessage = data => parent.postMessage(data, '*')</script>" + `<script src="${url}"></script>`
      )
      this.inside.document.close()
      this.ready = new Promise(done => { this.inside.onload = done })
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
