package zkserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// logbackConfig makes servers log at level INFO, if they use logback. Without a configuration, logback writes DEBUG lines, too.
const logbackConfig = `<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d [%t] %p %c{0} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="console"/></root>
</configuration>
`

func (p *program) writeConfig() error {
	if err := os.MkdirAll(p.dataDir(), 0o700); err != nil {
		return err
	}
	files := map[string]string{"zoo.cfg": p.zooCfg(), "logback.xml": logbackConfig}
	if p.peers != nil {
		files["data/myid"] = strconv.Itoa(p.id)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) zooCfg() string {
	lines := []string{
		"dataDir=" + p.dataDir(),
		"clientPort=" + strconv.Itoa(p.cfg.Port),
		"clientPortAddress=" + p.cfg.Host,
		fmt.Sprintf("tickTime=%d", p.cfg.TickTime.Milliseconds()),
		"maxSessionTimeout=60000",
		// The default of 60 connections per address is too low for many processes on one machine.
		"maxClientCnxns=0",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		"initLimit=20",
		"syncLimit=5",
	}
	return strings.Join(slices.Concat(lines, p.secureCfg(), p.peers), "\n") + "\n"
}

// secureCfg returns the lines of zoo.cfg for the secure port. Only servers on Netty can have one.
func (p *program) secureCfg() []string {
	if p.cfg.TLS == nil {
		return nil
	}
	lines := []string{
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		"secureClientPort=" + strconv.Itoa(p.securePort),
		"secureClientPortAddress=" + p.cfg.Host,
		"ssl.keyStore.type=PEM",
		"ssl.keyStore.location=" + p.cfg.TLS.KeyStore,
		"ssl.trustStore.type=PEM",
		"ssl.trustStore.location=" + p.cfg.TLS.TrustStore,
	}
	if p.cfg.TLS.ClientAuth != "" {
		lines = append(lines, "ssl.clientAuth="+p.cfg.TLS.ClientAuth)
	}
	return lines
}

// Command writes the configuration, and returns the java command that runs the server.
func (p *program) Command() (*exec.Cmd, error) {
	if err := p.writeConfig(); err != nil {
		return nil, err
	}
	args := []string{
		"-Xmx256m",
		"-Dzookeeper.preAllocSize=64", // in KiB for each transaction log; the default is 64 MiB
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
	}
	if p.cfg.NoSync {
		// Such a server runs for a short test. Further optimization and parallel garbage collection would not pay there.
		args = append(args, "-Dzookeeper.forceSync=no", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
	}
	if p.cfg.ContainerCheck > 0 {
		args = append(args, fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", p.cfg.ContainerCheck.Milliseconds()))
	}
	args = append(args,
		"-cp", p.dir+":"+p.launcher.classpath,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(p.dir, "zoo.cfg"))
	if p.cfg.Namespace == "" {
		return exec.Command(p.launcher.java, args...), nil
	}
	// The program ip replaces itself with the server, so its pid becomes the pid of the server.
	return exec.Command("ip", slices.Concat([]string{"netns", "exec", p.cfg.Namespace, p.launcher.java}, args)...), nil
}
