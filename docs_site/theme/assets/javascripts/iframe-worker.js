/* The site's search works from the file system too: browsers start no Worker from a file: address, so
   there a frame of the page itself does the worker's work. Elsewhere nothing is changed. */
(function () {
  "use strict"
  if (location.protocol !== "file:") return

  class IFrameWorker extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.title = "search"
      document.body.appendChild(frame)
      this.inner = frame.contentWindow
      this.inner.postMessage = data => {
        this.dispatchEvent(new MessageEvent("message", { data }))
      }
      this.inner.importScripts = (...scripts) => Promise.all(scripts.map(one => this.load(one)))
      this.ready = this.load(address)
      this.ready.catch(error => this.dispatchEvent(new ErrorEvent("error", { error })))
    }

    load(address) {
      const script = this.inner.document.createElement("script")
      return new Promise((done, failed) => {
        script.onload = done
        script.onerror = () => failed(new Error("cannot load " + address))
        script.src = new URL(address, location.href).href
        this.inner.document.body.appendChild(script)
      })
    }

    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.inner.frameElement.remove()
    }
  }

  window.IFrameWorker = IFrameWorker
  window.Worker = IFrameWorker
})()
