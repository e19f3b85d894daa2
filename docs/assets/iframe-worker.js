// The search runs in a worker, which browsers refuse to pages that are opened from a disk. There a
// hidden frame takes its place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inside = this.frame.contentWindow
      inside.document.open()
      inside.document.write(`<html><body><script>
        postMessage = parent.postMessage.bind(parent)
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise(done => {
          const script = document.createElement("script")
          script.src = url
          script.onload = done
          document.body.appendChild(script)
        })), Promise.resolve())
      </` + `script><script src="${url}"></` + `script></body></html>`)
      inside.document.close()
      this.ready = new Promise(done => inside.addEventListener("load", done, { once: true }))
      window.addEventListener("message", event => {
        if (event.source !== inside) return
        const own = new MessageEvent("message", { data: event.data })
        this.dispatchEvent(own)
        if (this.onmessage) this.onmessage(own)
      })
    }
    postMessage(data) {
      const inside = this.frame.contentWindow
      this.ready.then(() => inside.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
