/** The API client's types mention a package for websockets, which podnet has no use for and so no types of. */
declare module "ws" {
  class Socket {}
  namespace Socket {
    class WebSocket {}
    class Server {}
    interface ClientOptions {
      readonly headers?: object;
    }
    interface ServerOptions {
      readonly port?: number;
    }
  }
  export = Socket;
}
